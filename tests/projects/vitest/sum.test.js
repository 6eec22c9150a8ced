import { describe, expect, test } from 'vitest';
import { price, sum } from './sum.js';

test('passes', () => {
  expect(sum(1, 2)).toBe(3);
});
test('fails', () => {
  expect(sum(1, 2)).toBe(4);
});
test('errors in the code under test', () => {
  price('missing');
});
test.skip('is skipped', () => {});
test.todo('is to do');
test.fails('is expected to fail', () => {
  expect(1).toBe(2);
});
describe('a suite', () => {
  test.each([1, 2])('each %i', (n) => {
    expect(n).not.toBe(2);
  });
  describe('nested', () => {
    test('deep', async () => {
      expect({ a: 1, b: [1] }).toEqual({ a: 2, b: [1] });
    });
  });
});
