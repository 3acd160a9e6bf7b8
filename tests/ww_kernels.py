import torch, triton, triton.language as tl
from harness import emulator
from tests.emulator.watch.comparing import KERNELS, many, waits
from tests.emulator.watch.test_weak_kernels import exchange
@triton.jit
def inc(x, n, BLOCK: tl.constexpr, R: tl.constexpr):
    o = tl.program_id(0)*BLOCK + tl.arange(0, BLOCK)
    for r in range(R):
        tl.store(x+o, tl.load(x+o, mask=o<n)+1, mask=o<n)
@triton.jit
def overlap(x, y, flag, n, BLOCK: tl.constexpr, OFF: tl.constexpr):
    """Neighbours overlap: stores to lines that others load and store, with flags."""
    p = tl.program_id(0)
    o = p*BLOCK + tl.arange(0, BLOCK)
    a = tl.load(x+o+OFF, mask=o+OFF<n, other=0)
    tl.store(y+o, a, mask=o<n)
    tl.atomic_add(flag, 1, sem="release", scope="gpu")
    b = tl.load(y+o+OFF, mask=o+OFF<n, other=0)
    tl.atomic_add(flag, 1, sem="acquire", scope="gpu")
    c = tl.load(y+o+OFF, mask=o+OFF<n, other=0)
    tl.store(x+o, a+b*3+c*5, mask=o<n)
    d = tl.load(x+o+OFF, mask=o+OFF<n, other=0)
    tl.store(y+o, d, mask=o<n)
@triton.jit
def send(data, box, flag, n, BLOCK: tl.constexpr):
    o = tl.arange(0, BLOCK)
    tl.store(box+o, tl.load(data+o)+0)
    tl.debug_barrier()
    tl.atomic_xchg(flag, 1, sem="release", scope="sys")
@triton.jit
def recv(box, flag, out, n, BLOCK: tl.constexpr, SEM: tl.constexpr):
    o = tl.arange(0, BLOCK)
    first = tl.load(box+o)
    while tl.atomic_add(flag, 0, sem=SEM, scope="sys") == 0: pass
    tl.debug_barrier()
    tl.store(out+o, tl.load(box+o)+first*0)
def incs(n, R):
    def f(driver):
        x=torch.arange(1<<19,dtype=torch.int32)
        inc[(triton.cdiv(n,256),)](x,n,256,R,num_warps=2)
        return x[:n].tolist()
    return f
def overlaps(off, dt):
    def f(driver):
        n=1500
        x=torch.arange(1<<19).to(dt); y=torch.zeros(1<<19,dtype=dt); fl=torch.zeros(32,dtype=torch.int32)
        overlap[(6,)](x,y,fl,n,256,off,num_warps=1)
        return x[:n].tolist(), y[:n].tolist()
    return f
def message(n, warps, sem):
    def f(driver):
        data=torch.arange(1,n+1,dtype=torch.int32); box=torch.zeros(n,dtype=torch.int32); out=torch.zeros(n,dtype=torch.int32); fl=torch.zeros(32,dtype=torch.int32)
        with emulator.concurrent_ranks(driver) as ranks:
            with ranks.rank(0): send[(1,)](data,box,fl,n,n,num_warps=warps)
            with ranks.rank(1): recv[(1,)](box,fl,out,n,n,sem,num_warps=warps)
        return out.tolist()
    return f
PROGRAMS={"exchange":exchange(),"exchange4":exchange(4),"inc":incs(2000,1),"inc3":incs(700,3),"ov0":overlaps(0,torch.int32),"ov16":overlaps(16,torch.int32),"ov1h":overlaps(1,torch.int16),"ov64":overlaps(64,torch.int64),
 "msg256":message(256,1,"acquire"),"msg1024":message(1024,4,"acquire"),"msg1024r":message(1024,4,"relaxed"),"msg4096":message(4096,4,"relaxed"),
 "put": None}
del PROGRAMS["put"]
for k in KERNELS: PROGRAMS[k.__name__]=k
