"""The scripts that measure the code and its English, as modules: benchmarks/structure.py and
benchmarks/english.py with their parts."""

import importlib
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
BENCHMARKS = str(ROOT / "benchmarks")

sys.path.insert(0, BENCHMARKS)
english = importlib.import_module("english")
english_rules = importlib.import_module("english_rules")
structure = importlib.import_module("structure")
import_arrows = importlib.import_module("import_arrows")
plain_code = importlib.import_module("plain_code")
prose = importlib.import_module("prose")
private_names = importlib.import_module("private_names")
references = importlib.import_module("references")
source_files = importlib.import_module("source_files")
sys.path.remove(BENCHMARKS)
