const { price, sum } = require('../sum.js');

describe('sum', () => {
  it('passes', () => expect(sum(1, 2)).toBe(3));
  it('fails', () => {
    expect(sum(1, 2)).toBe(4);
  });
  it('errors in the code under test', () => price('pear'));
  xit('is skipped', () => {});
  it('is to do');
  describe('nested', () => {
    it('passes', () => expect(1).toBe(1));
  });
});
