add <- function(a, b) a + b

broken <- function() stop("broken")
