"""What pytest loads with `-p`. It works over what it loads so, each time anew; so this page is short, and the guest
himself is loaded as any other module. PYTEST_DONT_REWRITE
"""

from _ratchet_pytest_guest import (  # noqa: F401 — for pytest, which looks for them here
    pytest_assertrepr_compare,
    pytest_configure,
    pytest_make_collect_report,
    pytest_runtest_makereport,
)
