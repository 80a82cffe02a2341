"""Other languages than English for what people read: pages and reports.

English is the language of record. Errors, reasons and the sentences of reports are composed, stored, signed and
verified in English, and no other module knows of another language. A page or a report in another language is a view:
its finished texts are looked up here, in a gettext catalogue (`zh_CN.po`) of all messages of this project. A message
without a translation stays English. `python -m tools.messages` keeps the catalogue up to date.
"""

from irwm.language.catalogue import Catalogue
from irwm.language.languages import ENGLISH, LANGUAGES, catalogue_of

__all__ = ["ENGLISH", "LANGUAGES", "Catalogue", "catalogue_of"]
