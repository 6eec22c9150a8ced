const { test } = require('node:test');
test('before', () => {});
test('dies', () => {
  process.exit(0)
});
test('after', () => {});
