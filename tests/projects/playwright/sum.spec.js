const { expect, test } = require('@playwright/test');

test('passes', () => expect(1 + 2).toBe(3));
test('fails', () => {
  expect(1 + 2).toBe(4);
});
test('errors', () => {
  throw new TypeError('boom');
});
test.skip('is skipped', () => {});
test.fail('is expected to fail', () => expect(1).toBe(2));
test.describe('a suite', () => {
  test('inside', () => {});
});
