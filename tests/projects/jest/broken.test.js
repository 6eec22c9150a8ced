test('never seen', () => {
