module example.com/it

go 1.19
