library(testthat)
library(shop)
test_check("shop")
