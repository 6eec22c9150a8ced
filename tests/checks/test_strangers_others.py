"""What projects of strangers in Go, Rust, Ruby, PHP, Perl and others showed, each made as small as it can be."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.checks.support import needs, run, statuses
from tests.checks.test_detect import lay

pytestmark = pytest.mark.toolchain

BROKEN = 'RSpec.describe("b") { it("is never seen") {} }\nrequire "nowhere/to/be/found"\n'


def test_a_spec_that_does_not_load_keeps_no_other_from_running(tmp_path: Path) -> None:
    needs("rspec")
    good = 'RSpec.describe("a") { it("is run") {}; it("fails") { expect(1).to eq 2 } }\n'
    folder = lay(tmp_path / "it", {".rspec": "", "spec/a_spec.rb": good, "spec/b_spec.rb": BROKEN})
    report = run(folder)
    assert statuses(report) == {"spec/a_spec.rb[1:1]": "passed", "spec/a_spec.rb[1:2]": "failed"}
    assert [(error.file, error.line) for error in report.collection_errors] == [("spec/b_spec.rb", 2)]
    assert (report.status, report.exit_code) == ("failed", 1)
