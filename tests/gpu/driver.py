"""The CUDA driver and NVML through ctypes: calls by exported name, statuses as exceptions."""

import ctypes
from ctypes import byref, c_char, c_char_p, c_int, c_size_t, c_uint, c_uint64, c_ulonglong, c_void_p

SUCCESS, INVALID, OUT_OF_MEMORY = 0, 1, 2
# A value that no call writes: a refused call must leave it.
UNTOUCHED = 0x5A5A5A5A5A5A5A5A

PTX = b"""
.version 7.0
.target sm_75
.address_size 64
.visible .entry empty() { ret; }
\0"""


class Refused(Exception):
    """A call without success, with its status."""

    def __init__(self, call, status):
        super().__init__(f"{call} gives {status}")
        self.call, self.status = call, status


class Missing(AttributeError):
    """A function that this driver does not have."""

    def __init__(self, call):
        super().__init__(f"this driver has no {call}")


class Library:
    """Functions of a shared object that return a status. Whole numbers are passed as 64 bits."""

    def __init__(self, name):
        self.object = ctypes.CDLL(name)

    def status(self, call, *arguments):
        try:
            function = self.object[call]
        except AttributeError:
            raise Missing(call) from None
        function.restype = c_int
        return function(*[c_uint64(word & (1 << 64) - 1) if isinstance(word, int) else word for word in arguments])

    def __call__(self, call, *arguments):
        status = self.status(call, *arguments)
        if status != SUCCESS:
            raise Refused(call, status)

    def value(self, call, *arguments, kind=c_uint64):
        """Returns the value that a call writes to its first argument."""
        written = kind()
        self(call, byref(written), *arguments)
        return written.value


class Location(ctypes.Structure):
    _fields_ = [("kind", c_int), ("id", c_int)]


class AllocationProperties(ctypes.Structure):
    _fields_ = [("kind", c_int), ("handles", c_int), ("location", Location), ("security", c_void_p), ("flags", c_char * 8)]


class PoolProperties(ctypes.Structure):
    _fields_ = [
        ("kind", c_int), ("handles", c_int), ("location", Location), ("security", c_void_p), ("most", c_size_t),
        ("usage", ctypes.c_ushort), ("reserved", c_char * 54),
    ]  # fmt: skip


class Access(ctypes.Structure):
    _fields_ = [("location", Location), ("flags", c_int)]


PINNED, ON_DEVICE, READ_WRITE = 1, 1, 3
POOL_THRESHOLD, POOL_RESERVED, POOL_USED = 4, 5, 7
POOL_KEEPS_ALL = c_ulonglong((1 << 64) - 1)
NON_BLOCKING = 1


class Cuda(Library):
    """The initialised driver. The primary context of a device is current, unless `context` is false."""

    def __init__(self, context=True, number=0):
        super().__init__("libcuda.so.1")
        self("cuInit", 0)
        self.device = self.value("cuDeviceGet", number, kind=c_int)
        if context:
            self.context = self.value("cuDevicePrimaryCtxRetain", self.device)
            self("cuCtxSetCurrent", self.context)

    def size(self):
        return self.value("cuDeviceTotalMem_v2", self.device, kind=c_size_t)

    def info(self):
        """Returns free and total bytes."""
        free, total = c_size_t(), c_size_t()
        self("cuMemGetInfo_v2", byref(free), byref(total))
        return free.value, total.value

    def free(self):
        return self.info()[0]

    def attribute(self, number):
        return self.value("cuDeviceGetAttribute", number, self.device, kind=c_int)

    def stream(self):
        return self.value("cuStreamCreate", NON_BLOCKING)

    def uuid(self):
        raw = (c_char * 16)()
        self("cuDeviceGetUuid_v2", raw, self.device)
        text = bytes(raw).hex()
        return "GPU-" + "-".join([text[:8], text[8:12], text[12:16], text[16:20], text[20:]])

    def name(self):
        text = ctypes.create_string_buffer(128)
        self("cuDeviceGetName", text, 128, self.device)
        return text.value.decode()

    def on_device(self):
        return AllocationProperties(PINNED, 0, Location(ON_DEVICE, self.device))

    def granule(self):
        return self.value("cuMemGetAllocationGranularity", byref(self.on_device()), 0, kind=c_size_t)

    def new_pool(self, kind=PINNED):
        return self.value("cuMemPoolCreate", byref(PoolProperties(kind, 0, Location(ON_DEVICE, self.device))))

    def of_pool(self, pool, attribute=POOL_RESERVED):
        word = c_ulonglong()
        self("cuMemPoolGetAttribute", pool, attribute, byref(word))
        return word.value

    def map(self, handle, size):
        """Maps physical memory and returns the address."""
        address = self.value("cuMemAddressReserve", size, 0, 0, 0)
        self("cuMemMap", address, size, 0, handle, 0)
        self("cuMemSetAccess", address, size, byref(Access(Location(ON_DEVICE, self.device), READ_WRITE)), 1)
        return address

    def unmap(self, address, size):
        self("cuMemUnmap", address, size)
        self("cuMemAddressFree", address, size)

    def empty_kernel(self):
        module = self.value("cuModuleLoadData", PTX)
        return self.value("cuModuleGetFunction", module, b"empty")


class Memory(ctypes.Structure):
    _fields_ = [("total", c_ulonglong), ("free", c_ulonglong), ("used", c_ulonglong)]


class Memory2(ctypes.Structure):
    _fields_ = [
        ("version", c_uint), ("total", c_ulonglong), ("reserved", c_ulonglong), ("free", c_ulonglong), ("used", c_ulonglong),
    ]  # fmt: skip


class Nvml(Library):
    """NVML, with the device that has a UUID."""

    def __init__(self, uuid):
        super().__init__("libnvidia-ml.so.1")
        self("nvmlInit_v2")
        device = c_void_p()
        self("nvmlDeviceGetHandleByUUID", uuid.encode(), byref(device))
        self.device = device.value

    def memory(self):
        """Returns total, free and used bytes, in the older and the newer form."""
        old, new = Memory(), Memory2(version=0x02000028)
        self("nvmlDeviceGetMemoryInfo", self.device, byref(old))
        self("nvmlDeviceGetMemoryInfo_v2", self.device, byref(new))
        return {"v1": [old.total, old.free, old.used], "v2": [new.total, new.free, new.used], "reserved": new.reserved}

    def physical_free(self):
        return self.memory()["v2"][1]

    def driver(self):
        text = ctypes.create_string_buffer(96)
        self("nvmlSystemGetDriverVersion", text, 96)
        return text.value.decode()


def name_of(cuda, status):
    text = c_char_p()
    cuda.status("cuGetErrorName", status, byref(text))
    return (text.value or b"").decode()
