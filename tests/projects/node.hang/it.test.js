const { test } = require('node:test');
test('before', () => {});
test('hangs', () => {
  for (;;);
});
test('after', () => {});
