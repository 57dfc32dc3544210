// Part of base's front: what a bench says of the machine that it ran on, and of the memory that it took there.
#ifndef SND_BASE_MACHINE_H
#define SND_BASE_MACHINE_H

void snd_cpu_name(char out[64]);               ///< "Intel(R) Xeon(R) Processor"; "unknown" where the system names none
double snd_machine_load(void);                 ///< processors' worth of work on it, over the last minute; NaN: unknown
/// Most memory that this process has had since snd_memory_peak_start, which gives kept pages back first, in bytes; NaN where
/// the system does not count.
void snd_memory_peak_start(void);
double snd_memory_peak(void);
/// Gives pages that are kept for later back to the system (where the C library can).
void snd_heap_give_back(void);

#endif
