// Polynomial pieces of the elementary functions, written by tools/fit_maths.py: do not edit.
#ifndef SND_KERNELS_POLYNOMIALS_H
#define SND_KERNELS_POLYNOMIALS_H

// (e^x - 1 - x)/x^2 on [-0.34692, 0.34692], degree 4, relative error 1.3e-7
static inline float snd_p_exp_f32(float x) {
    float p = 1.39262508e-3f;
    p = p * x + 8.36323288e-3f;
    p = p * x + 4.16665542e-2f;
    p = p * x + 1.66665767e-1f;
    p = p * x + 5.0e-1f;
    return p;
}

// (e^(-x/2) - 1)/x on [-0.69384, 0.69384], degree 5, relative error 1.2e-8
static inline float snd_p_exp_half_f32(float x) {
    float p = 2.17714542e-5f;
    p = p * x + -2.61538134e-4f;
    p = p * x + 2.60415401e-3f;
    p = p * x + -2.08331308e-2f;
    p = p * x + 1.25e-1f;
    p = p * x + -5.00000005e-1f;
    return p;
}

// (e^-x - 1)/x on [-0.34692, 0.34692], degree 5, relative error 1.2e-8
static inline float snd_p_exp_minus_f32(float x) {
    float p = 1.39337307e-3f;
    p = p * x + -8.36922029e-3f;
    p = p * x + 4.16664642e-2f;
    p = p * x + -1.66665046e-1f;
    p = p * x + 5.00000001e-1f;
    p = p * x + -1.00000001f;
    return p;
}

// (atanh(s)/s - 1)/s^2, x = s^2 on [0.0, 0.0296], degree 2, relative error 2.8e-7
static inline float snd_p_log_f32(float x) {
    float p = 1.47928404e-1f;
    p = p * x + 1.9994327e-1f;
    p = p * x + 3.33333427e-1f;
    return p;
}

// (atanh(s)/s - 1)/s^2, x = s^2 on [0.0, 0.11111], degree 4, relative error 1.0e-8
static inline float snd_p_log1p_f32(float x) {
    float p = 1.16121646e-1f;
    p = p * x + 1.08532879e-1f;
    p = p * x + 1.4296179e-1f;
    p = p * x + 1.99998532e-1f;
    p = p * x + 3.33333337e-1f;
    return p;
}

// (tanh(s)/s - 1)/s^2, x = s^2 on [0.0, 0.36], degree 4, relative error 9.0e-8
static inline float snd_p_tanh_f32(float x) {
    float p = -6.26911972e-3f;
    p = p * x + 2.1110959e-2f;
    p = p * x + -5.38739488e-2f;
    p = p * x + 1.33329154e-1f;
    p = p * x + -3.33333303e-1f;
    return p;
}

// erf(s)/s, x = s^2 on [0.0, 0.81], degree 5, relative error 1.3e-8
static inline float snd_p_erf_f32(float x) {
    float p = -6.10268704e-4f;
    p = p * x + 5.01448415e-3f;
    p = p * x + -2.67807191e-2f;
    p = p * x + 1.12821941e-1f;
    p = p * x + -3.76125288e-1f;
    p = p * x + 1.12837915f;
    return p;
}

// e^(x^2/2) erfc(x/sqrt 2)/2 on [0.0, 14.5] is a ratio, relative error 7.4e-9: -2^-64 times what is divided, degree 4; xx = x x
static inline float snd_p_tail_over_f32(float x, float xx) {
    float p = -2.16269587e-20f;
    p = p * xx + (-2.14182416e-19f * x + -9.6772526e-19f);
    p = p * xx + (-2.31822385e-18f * x + -2.64883139e-18f);
    return p;
}

// what it is divided by, degree 5; xx = x x
static inline float snd_p_tail_under_f32(float x, float xx) {
    float p = x + 9.90424374f;
    p = p * xx + (4.57320037e+1f * x + 1.17294483e+2f);
    p = p * xx + (1.63500368e+2f * x + 9.77246289e+1f);
    return p;
}

// (e^x - 1 - x)/x^2 on [-0.34692, 0.34692], degree 9, relative error 2.2e-16
static inline double snd_p_exp_f64(double x) {
    double p = 2.5100472505694996e-8;
    p = p * x + 2.7620201591031549e-7;
    p = p * x + 2.7557268276905696e-6;
    p = p * x + 2.4801521057868205e-5;
    p = p * x + 1.9841269863171556e-4;
    p = p * x + 1.3888888917367081e-3;
    p = p * x + 8.3333333333300382e-3;
    p = p * x + 4.1666666666623821e-2;
    p = p * x + 1.6666666666666667e-1;
    p = p * x + 5.000000000000001e-1;
    return p;
}

// (e^(-x/2) - 1)/x on [-0.69384, 0.69384], degree 10, relative error 2.0e-17
static inline double snd_p_exp_half_f64(double x) {
    double p = -1.2258453481260792e-11;
    p = p * x + 2.6978999557062692e-10;
    p = p * x + -5.3822764003907983e-9;
    p = p * x + 9.6880875056355098e-8;
    p = p * x + -1.550099208984553e-6;
    p = p * x + 2.1701388957423438e-5;
    p = p * x + -2.604166666664401e-4;
    p = p * x + 2.6041666666607745e-3;
    p = p * x + -2.0833333333333339e-2;
    p = p * x + 1.2500000000000014e-1;
    p = p * x + -5.0e-1;
    return p;
}

// (e^-x - 1)/x on [-0.34692, 0.34692], degree 10, relative error 2.0e-17
static inline double snd_p_exp_minus_f64(double x) {
    double p = -2.5105312729622102e-8;
    p = p * x + 2.7626495546432196e-7;
    p = p * x + -2.7557255170000887e-6;
    p = p * x + 2.4801504014426905e-5;
    p = p * x + -1.9841269875002279e-4;
    p = p * x + 1.3888888932751e-3;
    p = p * x + -8.3333333333260831e-3;
    p = p * x + 4.1666666666572391e-2;
    p = p * x + -1.6666666666666671e-1;
    p = p * x + 5.0000000000000057e-1;
    p = p * x + -1.0;
    return p;
}

// (atanh(s)/s - 1)/s^2, x = s^2 on [0.0, 0.0296], degree 6, relative error 4.7e-16
static inline double snd_p_log_f64(double x) {
    double p = 7.3119783041059394e-2;
    p = p * x + 7.6655562939800838e-2;
    p = p * x + 9.0914537488356089e-2;
    p = p * x + 1.1111105440966464e-1;
    p = p * x + 1.4285714313764398e-1;
    p = p * x + 1.9999999999948035e-1;
    p = p * x + 3.3333333333333349e-1;
    return p;
}

// (atanh(s)/s - 1)/s^2, x = s^2 on [0.0, 0.11111], degree 10, relative error 3.4e-18
static inline double snd_p_log1p_f64(double x) {
    double p = 7.8152889004614252e-2;
    p = p * x + 3.7460718977753837e-2;
    p = p * x + 5.4225891974400074e-2;
    p = p * x + 5.8671395306515987e-2;
    p = p * x + 6.6675893157246279e-2;
    p = p * x + 7.6922719824302746e-2;
    p = p * x + 9.0909099489813572e-2;
    p = p * x + 1.1111111099118385e-1;
    p = p * x + 1.428571428580005e-1;
    p = p * x + 1.9999999999999761e-1;
    p = p * x + 3.3333333333333333e-1;
    return p;
}

// (tanh(s)/s - 1)/s^2, x = s^2 on [0.0, 0.36], degree 10, relative error 1.4e-16
static inline double snd_p_tanh_f64(double x) {
    double p = -1.833596211003942e-5;
    p = p * x + 8.1547378065253651e-5;
    p = p * x + -2.3225104067938509e-4;
    p = p * x + 5.880541548418729e-4;
    p = p * x + -1.4554648028007449e-3;
    p = p * x + 3.5920831663434575e-3;
    p = p * x + -8.8632321135414732e-3;
    p = p * x + 2.1869488383780929e-2;
    p = p * x + -5.3968253964757625e-2;
    p = p * x + 1.3333333333330196e-1;
    p = p * x + -3.3333333333333329e-1;
    return p;
}

// erf(s)/s, x = s^2 on [0.0, 0.81], degree 11, relative error 6.7e-19
static inline double snd_p_erf_f64(double x) {
    double p = -8.4939987970809436e-10;
    p = p * x + 1.4051482766989913e-8;
    p = p * x + -1.6276526722586206e-7;
    p = p * x + 1.6455328747938096e-6;
    p = p * x + -1.492530753550859e-5;
    p = p * x + 1.2055321382481122e-4;
    p = p * x + -8.5483267644665423e-4;
    p = p * x + 5.2239776217703724e-3;
    p = p * x + -2.6866170644823731e-2;
    p = p * x + 1.1283791670953794e-1;
    p = p * x + -3.761263890318373e-1;
    p = p * x + 1.1283791670955126;
    return p;
}

// e^(x^2/2) erfc(x/sqrt 2)/2 on [0.0, 39.0] is a ratio, relative error 4.1e-18: -2^-64 times what is divided, degree 10; xx = x x
static inline double snd_p_tail_over_f64(double x, double xx) {
    double p = -2.1626704355379371e-20;
    p = p * xx + (-6.5611949352175942e-19 * x + -9.8174355659395839e-18);
    p = p * xx + (-9.4078703360875957e-17 * x + -6.3436676766815243e-16);
    p = p * xx + (-3.1312850248049987e-15 * x + -1.1439835409415571e-14);
    p = p * xx + (-3.0575549974023805e-14 * x + -5.7455768351410977e-14);
    p = p * xx + (-6.9157425397063428e-14 * x + -4.1219874384478298e-14);
    return p;
}

// what it is divided by, degree 11; xx = x x
static inline double snd_p_tail_under_f64(double x, double xx) {
    double p = x + 3.033839473368565e+1;
    p = p * xx + (4.5494968204907431e+2 * x + 4.3804558152230746e+3);
    p = p * xx + (2.9784517284155454e+4 * x + 1.4907733705172633e+5);
    p = p * xx + (5.5740270148786578e+5 * x + 1.5501780191275396e+6);
    p = p * xx + (3.131470901140231e+6 * x + 4.3632770048747183e+6);
    p = p * xx + (3.7648375683562485e+6 * x + 1.5207449470418544e+6);
    return p;
}

#endif
