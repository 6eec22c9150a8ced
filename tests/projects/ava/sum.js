export function sum(a, b) {
  if (typeof b !== 'number') {
    throw new TypeError('numbers only');
  }
  return a + b;
}
