"""The applying half of the machine; it never imports the deciding half."""

from penstock.core.apply.table import apply as apply
