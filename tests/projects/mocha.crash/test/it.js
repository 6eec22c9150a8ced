it('before', () => {});
it('dies', () => {
  process.exit(0)
});
it('after', () => {});
