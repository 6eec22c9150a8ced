test('before', () => {});
test('hangs', () => {
  for (;;);
});
test('after', () => {});
