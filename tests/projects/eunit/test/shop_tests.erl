-module(shop_tests).
-include_lib("eunit/include/eunit.hrl").

passes_test() -> ?assertEqual(3, shop:add(1, 2)).

fails_test() ->
    ?assertEqual(4, shop:add(1, 2)).

errors_test() -> shop:fail().

matches_test() -> ?assertMatch({ok, _}, {error, shop:add(1, 2)}).

group_test_() ->
    [?_assertEqual(3, shop:add(1, 2)),
     {"named", ?_assert(shop:add(1, 2) =:= 4)},
     ?_assertException(error, badarg, shop:fail())].

set_up_test_() ->
    {setup, fun() -> error(no_database) end, fun(_) -> ok end, fun(_) -> [?_assert(true)] end}.
