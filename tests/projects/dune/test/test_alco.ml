let passes () = Alcotest.(check int) "sum" 3 (Shop.add 1 2)
let fails () =
  Alcotest.(check int) "sum" 4 (Shop.add 1 2)
let errors () = Shop.fail ()
let quick () = ()
let () =
  Alcotest.run "shop"
    [ ("add", [ Alcotest.test_case "passes" `Quick passes; Alcotest.test_case "fails" `Quick fails ]);
      ("other", [ Alcotest.test_case "errors" `Quick errors; Alcotest.test_case "is quick" `Quick quick ]) ]
