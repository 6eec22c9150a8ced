import test from 'ava';
import { nothing } from '../nothing.js';
