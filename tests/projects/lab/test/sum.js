const { strictEqual } = require('node:assert');
const { describe, it } = (exports.lab = require('@hapi/lab').script());

describe('sum', () => {
  it('passes', () => {
    strictEqual(1 + 2, 3);
  });
  it('fails', () => {
    strictEqual(1 + 2, 4);
  });
  it.skip('is skipped', () => {});
});
