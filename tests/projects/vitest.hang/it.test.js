import { test } from 'vitest';
test('before', () => {});
test('hangs', () => {
  for (;;);
});
test('after', () => {});
