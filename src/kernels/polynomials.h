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

// (a+4) e^(a^2/2) erfc(a/sqrt 2)/2, x = (a-4)/(a+4) on [-1.0, 0.56757], degree 10, relative error 2.5e-9
static inline float snd_p_erfc_f32(float x) {
    float p = -5.26456498e-5f;
    p = p * x + -2.34621761e-4f;
    p = p * x + 1.69355458e-4f;
    p = p * x + 1.64629561e-3f;
    p = p * x + -3.48807553e-3f;
    p = p * x + -7.54526816e-3f;
    p = p * x + 6.03972939e-2f;
    p = p * x + -1.86521307e-1f;
    p = p * x + 3.87137382e-1f;
    p = p * x + -6.07896658e-1f;
    p = p * x + 7.5528513e-1f;
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

// (a+5) e^(a^2/2) erfc(a/sqrt 2)/2, x = (a-5)/(a+5) on [-1.0, 0.77273], degree 23, relative error 4.9e-19
static inline double snd_p_erfc_f64(double x) {
    double p = -3.8161803530042397e-10;
    p = p * x + -1.160886448380309e-9;
    p = p * x + 2.2208486217731487e-9;
    p = p * x + 1.0797345335746257e-8;
    p = p * x + -8.5556966282546327e-9;
    p = p * x + -7.014220631960926e-8;
    p = p * x + 4.0177962891473737e-8;
    p = p * x + 4.3629255682225393e-7;
    p = p * x + -3.345738518771817e-7;
    p = p * x + -2.7707204135122385e-6;
    p = p * x + 3.9798048993290895e-6;
    p = p * x + 1.6681639595174006e-5;
    p = p * x + -4.976245616870157e-5;
    p = p * x + -5.9375807358891233e-5;
    p = p * x + 5.4489899275840261e-4;
    p = p * x + -7.9786938929585886e-4;
    p = p * x + -2.9933767618687429e-3;
    p = p * x + 2.0795066799260342e-2;
    p = p * x + -6.9118638706878137e-2;
    p = p * x + 1.6502036617040715e-1;
    p = p * x + -3.1353315667128745e-1;
    p = p * x + 4.9530561596997607e-1;
    p = p * x + -6.6538250289005685e-1;
    p = p * x + 7.6919304975006296e-1;
    return p;
}

#endif
