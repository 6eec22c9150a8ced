use strict;
use warnings;
use Test::More tests => 3;

is(1 + 2, 3, 'passes');
is(1 + 2, 4, 'fails');
SKIP: { skip 'not today', 1; ok(0) }
