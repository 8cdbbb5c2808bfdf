import sys, time
from sim.world import run
if __name__ == "__main__":
    a,b = int(sys.argv[1]), int(sys.argv[2])
    t=time.process_time(); secs=0
    for seed in range(a,b):
        r=run(seed, 10)
        secs+=r.seconds
        if r.violation: print(seed, r.violation); 
    cpu=time.process_time()-t
    print(r, f"{cpu:.2f}s cpu {secs/3600/(cpu/60):.1f} sim-h/cpu-min")
