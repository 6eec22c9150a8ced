import test from 'ava';
import { sum } from '../sum.js';

test('passes', (t) => {
  t.is(sum(1, 2), 3);
});

test('fails', (t) => {
  t.is(sum(1, 2), 4);
});

test('errors in the code under test', (t) => {
  t.is(sum(1, 'x'), 4);
});

test('deep', (t) => {
  t.deepEqual({ a: 1 }, { a: 2 });
});

test.skip('is skipped', (t) => t.pass());
test.todo('is to do');
test.failing('is expected to fail', (t) => t.is(1, 2));
test('logs', (t) => { t.log('hello'); t.pass(); });
