import { test } from 'vitest';
test('before', () => {});
test('dies', () => {
  process.exit(0)
});
test('after', () => {});
