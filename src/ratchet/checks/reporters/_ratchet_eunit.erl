%% A listener for EUnit, named by the variable EUNIT, that writes records as they happen.
-module('_ratchet_eunit').
-behaviour(eunit_listener).
-export([start/0, start/1, init/1, handle_begin/3, handle_end/3, handle_cancel/3, terminate/2]).

start() -> start([]).
start(Options) -> eunit_listener:start(?MODULE, Options).

init(_Options) ->
    {ok, Root} = file:get_cwd(),
    say([{kind, start}, {nonce, nonce()}, {version, erlang:system_info(otp_release)}]),
    #{root => Root, seen => #{}, id => none}.

handle_begin(test, Data, State0) ->
    {Id, State} = named(Data, State0),
    say([{kind, test_start}, {id, Id}]),
    State#{id => Id};
handle_begin(_, _Data, State) -> State.

handle_end(test, Data, #{id := Id} = State) ->
    tell(Id, Data, outcome(proplists:get_value(status, Data), State), State),
    State#{id => none};
handle_end(_, _Data, State) -> State.

%% Tests that never ran or timed out. A failed set-up cancels all its tests and is identified by its function.
handle_cancel(_, Data, State) ->
    case proplists:get_value(reason, Data) of
        undefined -> State;
        {startup, _} -> State;
        {blame, _} -> State; % a test in it is the cause, and was reported
        Reason ->
            {Class, Term, Stack} = aborted(Reason),
            {Id, Named} = cancelled(Data, Stack, State),
            tell(Id, Data, [{'when', setup} | raised(Class, Term, Stack, State)], Named),
            Named#{id => none}
    end.

cancelled(Data, [{M, F, A, _} | _], #{id := none} = State) -> named([{source, {M, F, A}} | Data], State);
cancelled(Data, _, #{id := none} = State) -> named(Data, State);
cancelled(_, _, #{id := Id} = State) -> {Id, State}.

terminate({ok, _Data}, _State) -> say([{kind, 'end'}, {nonce, nonce()}]);
terminate({error, _Reason}, _State) -> ok.

aborted({abort, {What, {Class, Term, Stack}}}) when is_list(Stack) -> {Class, {What, Term}, Stack};
aborted(Reason) -> {exit, Reason, []}.

outcome(ok, _) -> [{outcome, passed}];
outcome({skipped, Reason}, _) -> [{outcome, skipped}, {reason, text(Reason)}];
outcome({error, {Class, Term, Stack}}, State) -> raised(Class, Term, Stack, State);
outcome(Other, _) -> [{outcome, failed}, {message, text(Other)}].

raised(Class, {What, [{_, _} | _] = Facts}, Stack, State) when is_atom(What) ->
    Said = [text(V) || K <- [comment, expression, pattern, unexpected_exception], {_, V} <- [proplists:lookup(K, Facts)]],
    Sides = [{Side, shown(K, V)} || {Side, Ks} <- sides(), K <- Ks, {_, V} <- [proplists:lookup(K, Facts)]],
    At = [{line, proplists:get_value(line, Facts)}],
    [{outcome, failed}, {type, What}, {message, lists:join(<<": ">>, Said)},
     {frames, frames(Stack, At, proplists:get_value(module, Facts), State)} | Sides] ++ [{error, Class =/= error}];
raised(Class, Term, Stack, State) ->
    [{outcome, failed}, {error, true}, {type, type(Class, Term)}, {message, [text(Class), <<": ">>, text(Term)]},
     {frames, frames(Stack, [], undefined, State)}].

sides() -> [{expected, [expected, pattern]}, {actual, [value, unexpected_success]}].
shown(pattern, Code) -> Code;
shown(_, Value) -> text(Value).

type(_, Term) when is_atom(Term) -> Term;
type(_, Term) when is_tuple(Term), is_atom(element(1, Term)) -> element(1, Term);
type(Class, _) -> Class.

%% The innermost last. An assertion contains its line: a tail call may have removed its frame.
frames(Stack, At, Module, State) ->
    Known = [frame(M, F, Info, State) || {M, F, _, Info} <- lists:reverse(Stack)],
    Own = [[{file, source(Module, State)}, {line, Line}] || {line, Line} <- At, is_integer(Line)],
    Found = [Frame || [{file, File} | _] = Frame <- Known, File =/= <<>>],
    case {Found, Own} of
        {[], _} -> Own;
        {_, [[{file, File}, {line, Line}]]} ->
            case lists:any(fun([{file, F}, {line, L} | _]) -> {F, L} =:= {File, Line} end, Found) of
                true -> Found;
                false -> Found ++ Own
            end;
        _ -> Found
    end.

frame(Module, Function, Info, State) ->
    File = relative(proplists:get_value(file, Info, ""), State),
    [{file, File}, {line, proplists:get_value(line, Info, 0)}, {function, [text(Module), $:, text(Function)]}].

source(Module, State) ->
    try relative(proplists:get_value(source, Module:module_info(compile), ""), State) catch _:_ -> <<>> end.

relative(Path, #{root := Root}) ->
    case string:prefix(Path, Root ++ "/") of
        nomatch -> case filelib:is_regular(filename:join(Root, Path)) of true -> iolist_to_binary(Path); false -> <<>> end;
        "_build/" ++ _ -> <<>>;
        Rest -> unicode:characters_to_binary(Rest)
    end.

%% A generator's tests have names of funs: they are counted instead, unless they are described.
named(Data, #{seen := Seen} = State) ->
    Base = base(proplists:get_value(source, Data), proplists:get_value(desc, Data)),
    Count = maps:get(Base, Seen, 0) + 1,
    Generated = string:find(Base, <<"_test_">>) =/= nomatch,
    Id = case Generated orelse Count > 1 of true -> [Base, $#, integer_to_binary(Count)]; false -> Base end,
    {iolist_to_binary(Id), State#{seen := Seen#{Base => Count}}}.

base({Module, Function, _}, Desc) ->
    Own = re:replace(atom_to_binary(Function), <<"^-(.*)/\\d+-(?:fun|after|lc|anonymous)-.*$">>, <<"\\1">>),
    Said = case Desc of undefined -> []; <<>> -> []; "" -> []; _ -> [$/, Desc] end,
    unicode:characters_to_binary([atom_to_binary(Module), $:, Own, Said]);
base(_, Desc) when Desc =/= undefined, Desc =/= <<>> -> unicode:characters_to_binary([Desc]);
base(_, _) -> <<"set-up">>.

tell(Id, Data, More, State) ->
    {File, Line} = case proplists:get_value(source, Data) of
        {Module, _, _} -> {source(Module, State), proplists:get_value(line, Data, 0)};
        _ -> {<<>>, 0}
    end,
    Time = proplists:get_value(time, Data, 0) / 1000,
    When = proplists:get_value('when', More, call),
    say([{kind, phase}, {id, Id}, {'when', When}, {last, true}, {duration, Time}, {file, File}, {line, Line}, {name, Id},
         {stdout, proplists:get_value(output, Data, <<>>)} | proplists:delete('when', More)]).

nonce() -> os:getenv("_RATCHET_NONCE", "").

say(Row) ->
    case os:getenv("_RATCHET_REPORT") of
        false -> ok;
        Path -> file:write_file(Path, [json({Row}), $\n], [append])
    end.

text(Binary) when is_binary(Binary) -> try io_lib:format("~ts", [Binary]) catch _:_ -> io_lib:format("~p", [Binary]) end;
text(Text) when is_list(Text) -> case io_lib:printable_unicode_list(Text) andalso Text =/= [] of true -> Text; false -> io_lib:format("~tp", [Text]) end;
text(Term) -> io_lib:format("~tp", [Term]).

json({Row}) -> [${, lists:join($,, [[string(atom_to_binary(K)), $:, value(K, V)] || {K, V} <- Row]), $}].

value(frames, Frames) -> [$[, lists:join($,, [json({Frame}) || Frame <- Frames]), $]];
value(_, true) -> "true";
value(_, false) -> "false";
value(_, undefined) -> "0";
value(_, Number) when is_integer(Number) -> integer_to_list(Number);
value(_, Number) when is_float(Number) -> io_lib:format("~.6f", [Number]);
value(_, Atom) when is_atom(Atom) -> string(atom_to_binary(Atom));
value(_, Text) -> string(Text).

string(Text) ->
    Whole = try unicode:characters_to_binary(Text) of B when is_binary(B) -> B; _ -> text_of(Text) catch _:_ -> text_of(Text) end,
    [$", [escape(C) || <<C/utf8>> <= binary:part(Whole, 0, min(byte_size(Whole), 20000))], $"].

text_of(Text) -> unicode:characters_to_binary(io_lib:format("~p", [Text])).

escape($") -> "\\\"";
escape($\\) -> "\\\\";
escape(C) when C < 32; C =:= 127 -> io_lib:format("\\u~4.16.0b", [C]);
escape(C) -> <<C/utf8>>.
