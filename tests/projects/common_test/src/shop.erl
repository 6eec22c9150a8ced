-module(shop).
-export([add/2, fail/0]).

add(A, B) -> A + B.

fail() -> erlang:error(broken).
