"""Faults that the checked emulator finds in a kernel, and their reports.

`errors.py` has the classes, `raw.py` what the runtime writes down, `explain.py` turns one into the
other, `hints.py` says what would order two accesses, `standing.py` where a node stands in the text.
"""

from uopc.faults.errors import Access as Access
from uopc.faults.errors import AccumulatorError as AccumulatorError
from uopc.faults.errors import AssertionFault as AssertionFault
from uopc.faults.errors import BarrierError as BarrierError
from uopc.faults.errors import BoundsError as BoundsError
from uopc.faults.errors import ClusterError as ClusterError
from uopc.faults.errors import CopyError as CopyError
from uopc.faults.errors import DeadlockError as DeadlockError
from uopc.faults.errors import Facts as Facts
from uopc.faults.errors import Fault as Fault
from uopc.faults.errors import IndexOverflowError as IndexOverflowError
from uopc.faults.errors import MbarrierError as MbarrierError
from uopc.faults.errors import MembersError as MembersError
from uopc.faults.errors import Memory as Memory
from uopc.faults.errors import MisalignedError as MisalignedError
from uopc.faults.errors import OrderError as OrderError
from uopc.faults.errors import ProxyFenceError as ProxyFenceError
from uopc.faults.errors import RaceError as RaceError
from uopc.faults.errors import Report as Report
from uopc.faults.errors import SameValueWarning as SameValueWarning
from uopc.faults.errors import UninitialisedError as UninitialisedError
from uopc.faults.errors import UnwaitedError as UnwaitedError
from uopc.faults.errors import UnwrittenError as UnwrittenError
from uopc.faults.explain import explain as explain
from uopc.faults.raw import FaultKind as FaultKind
from uopc.faults.raw import RawFault as RawFault
