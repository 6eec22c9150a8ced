"""The module that pytest loads with `-p`. pytest rewrites it in each run, so it is short and imports the plugin like
any other module. PYTEST_DONT_REWRITE"""

from _ratchet_pytest_guest import (  # noqa: F401 — for pytest, which looks for these names here
    pytest_assertrepr_compare,
    pytest_configure,
    pytest_make_collect_report,
    pytest_runtest_makereport,
)
