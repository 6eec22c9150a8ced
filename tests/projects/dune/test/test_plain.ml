let () = assert (Shop.add 1 2 = 4)
