PRICES = {"apple": 3}


def total(prices):
    """The sum.

    >>> total([1, 2])
    3
    """
    return sum(prices)


def price(name):
    return PRICES[name]
