import { test } from 'bun:test';
import './missing.js';
test('never seen', () => {});
