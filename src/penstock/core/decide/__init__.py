"""The deciding half of the machine; it never imports the applying half."""

from penstock.core.decide.table import check as check
from penstock.core.decide.table import decide as decide
