const { test, describe, it } = require('node:test');
const assert = require('node:assert');
const { sum, price } = require('./sum.js');

test('passes', () => assert.strictEqual(sum(1, 2), 3));
test('fails', () => {
  assert.strictEqual(sum(1, 2), 4);
});
test('errors in the code under test', () => price('missing'));
test('is skipped', { skip: 'not today' }, () => {});
test('is to do', { todo: true }, () => {});
test('has subtests', async (t) => {
  await t.test('one', () => {});
  await t.test('two', () => assert.deepStrictEqual({ a: 1 }, { a: 2 }));
});
describe('a suite', () => {
  it('inside', async () => {});
  describe('nested', () => {
    it('deep', () => assert.ok(false, 'not ok at all'));
  });
});
