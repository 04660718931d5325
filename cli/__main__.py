"""`python -m modelsup.cli`: the command where no console script is on the path."""

import sys

from .main import main

sys.exit(main())
