import { describe, expect, test } from 'bun:test';

test('passes', () => {
  expect(1 + 2).toBe(3);
});
test('fails', () => {
  expect(1 + 2).toBe(4);
});
test('errors', () => {
  null.boom;
});
test.skip('is skipped', () => {});
test.todo('is to do');
describe('a suite', () => {
  test('inside', () => {});
});
