it('before', () => {});
it('hangs', () => {
  for (;;);
});
it('after', () => {});
