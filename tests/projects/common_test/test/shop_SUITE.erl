-module(shop_SUITE).
-include_lib("common_test/include/ct.hrl").
-include_lib("stdlib/include/assert.hrl").
-export([all/0, groups/0, init_per_testcase/2, end_per_testcase/2]).
-export([passes/1, fails/1, errors/1, is_skipped/1, inside/1, matches/1, no_setup/1]).

all() -> [passes, fails, errors, is_skipped, matches, no_setup, {group, g}].
groups() -> [{g, [], [inside]}].

init_per_testcase(no_setup, _Config) -> error(no_database);
init_per_testcase(_, Config) -> Config.
end_per_testcase(_, _Config) -> ok.

passes(_) -> 3 = shop:add(1, 2).
fails(_) ->
    ?assertEqual(4, shop:add(1, 2)).
errors(_) -> shop:fail().
is_skipped(_) -> {skip, "not today"}.
matches(_) -> 4 = shop:add(1, 2).
no_setup(_) -> ok.
inside(_) -> ok.
