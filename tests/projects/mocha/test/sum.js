const assert = require('node:assert');
const { sum, price } = require('../sum.js');

describe('sum', () => {
  it('passes', () => assert.strictEqual(sum(1, 2), 3));
  it('fails', () => {
    assert.strictEqual(sum(1, 2), 4);
  });
  it('errors in the code under test', () => {
    price('missing');
  });
  it.skip('is skipped', () => {});
  it('is to do');
  describe('nested', () => {
    it('deep', async () => assert.deepStrictEqual({ a: 1 }, { a: 2 }));
  });
});

describe('a broken hook', () => {
  before(() => {
    throw new Error('no set-up');
  });
  it('is never run', () => {});
});
