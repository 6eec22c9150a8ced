import assert from 'node:assert';

Deno.test('passes', () => assert.strictEqual(1 + 2, 3));
Deno.test('fails', () => {
  assert.strictEqual(1 + 2, 4);
});
Deno.test('errors', () => {
  throw new TypeError('boom');
});
Deno.test({ name: 'is skipped', ignore: true, fn: () => {} });
