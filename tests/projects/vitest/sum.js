const prices = { apple: { euros: 3 } };
export const sum = (a, b) => a + b;
export const price = (name) => prices[name].euros;
