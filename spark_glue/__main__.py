"""``python -m spark_glue``; also the program for spark-submit."""

import sys

from spark_glue.cli import main

sys.exit(main())
