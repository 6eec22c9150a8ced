module.exports = { testDir: '.', workers: 1 };
