open OUnit2
let suite =
  "shop" >::: [
    "passes" >:: (fun _ -> assert_equal 3 (Shop.add 1 2));
    "fails" >:: (fun _ ->
      assert_equal ~printer:string_of_int 4 (Shop.add 1 2));
    "errors" >:: (fun _ -> ignore (Shop.fail ()));
    "skipped" >:: (fun _ -> skip_if true "not today");
    "todo" >:: (fun _ -> todo "later");
    "group" >::: [ "inside" >:: (fun _ -> assert_bool "yes" true) ];
  ]
let () = run_test_tt_main suite
