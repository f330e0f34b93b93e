/* Acrobot-v1: swing the tip of a two-link arm above a line with a motor in the middle joint only.
 * The equations are those of Sutton and Barto's book; masses and lengths are 1, centres of mass at
 * 0.5, moments of inertia 1. */
#include "client/trainer/environment.h"

#include <math.h>

static const double pi = 3.14159265358979323846;
static const double gravity = 9.8;
static const double centre = 0.5;
static const double dt = 0.2;

static void reset(double *state, struct chance *chance)
{
    for (size_t i = 0; i < 4; i++)
        state[i] = chance_uniform(chance, -0.1, 0.1);
}

static void derivative(const double *s, double torque, double *out)
{
    const double theta1 = s[0], theta2 = s[1], dtheta1 = s[2], dtheta2 = s[3];
    const double c = centre, cosine = cos(theta2), sine = sin(theta2);
    const double d1 = c * c + (1 + c * c + 2 * c * cosine) + 2;
    const double d2 = (c * c + c * cosine) + 1;
    const double phi2 = c * gravity * cos(theta1 + theta2 - pi / 2);
    const double phi1 = -c * (dtheta2 * dtheta2) * sine - 2 * c * dtheta2 * dtheta1 * sine +
                        (c + 1) * gravity * cos(theta1 - pi / 2) + phi2;
    const double acc2 = (torque + d2 / d1 * phi1 - c * (dtheta1 * dtheta1) * sine - phi2) /
                        (c * c + 1 - (d2 * d2) / d1);
    out[0] = dtheta1;
    out[1] = dtheta2;
    out[2] = -(d2 * acc2 + phi1) / d1;
    out[3] = acc2;
}

static void moved(const double *s, const double *slope, double h, double *out)
{
    for (size_t i = 0; i < 4; i++)
        out[i] = s[i] + h * slope[i];
}

/* One step of the classic fourth-order Runge-Kutta method. */
static void integrate(double *s, double torque)
{
    double k1[4], k2[4], k3[4], k4[4], at[4];
    derivative(s, torque, k1);
    moved(s, k1, dt / 2, at);
    derivative(at, torque, k2);
    moved(s, k2, dt / 2, at);
    derivative(at, torque, k3);
    moved(s, k3, dt, at);
    derivative(at, torque, k4);
    for (size_t i = 0; i < 4; i++)
        s[i] += dt / 6 * (k1[i] + 2 * k2[i] + 2 * k3[i] + k4[i]);
}

static double wrap(double angle)
{
    while (angle > pi)
        angle -= 2 * pi;
    while (angle < -pi)
        angle += 2 * pi;
    return angle;
}

static double clamp(double x, double limit)
{
    return fmin(fmax(x, -limit), limit);
}

static bool step(double *state, double action, double *reward)
{
    integrate(state, action - 1);
    state[0] = wrap(state[0]);
    state[1] = wrap(state[1]);
    state[2] = clamp(state[2], 4 * pi);
    state[3] = clamp(state[3], 9 * pi);
    const bool above = -cos(state[0]) - cos(state[1] + state[0]) > 1;
    *reward = above ? 0 : -1;
    return above;
}

static void observe(const double *state, float *observation)
{
    observation[0] = (float)cos(state[0]);
    observation[1] = (float)sin(state[0]);
    observation[2] = (float)cos(state[1]);
    observation[3] = (float)sin(state[1]);
    observation[4] = (float)state[2];
    observation[5] = (float)state[3];
}

const struct environment environment_acrobot = {
    .name = "Acrobot-v1",
    .state_dim = 4,
    .observation_dim = 6,
    .action_dim = 3,
    .discrete = true,
    .time_limit = 500,
    .reset = reset,
    .step = step,
    .observe = observe,
};
