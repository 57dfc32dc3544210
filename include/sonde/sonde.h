// Everything public. See spec.h, lab.h, train.h, record.h, kernels.h; examples/ has programs.
#ifndef SONDE_H
#define SONDE_H

#include <sonde/kernels.h>
#include <sonde/lab.h>
#include <sonde/record.h>
#include <sonde/spec.h>
#include <sonde/status.h>
#include <sonde/train.h>
#include <sonde/version.h>

#endif
