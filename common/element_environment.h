/* The four classic-control environments as Gymnasium defines them, as functions of one state in
 * double: how it starts from uniforms of [0, 1), what an action does, what is seen. Formulas and
 * constants: tests/vectors/README.md, families env_step and env_trace. A step returns whether the
 * episode has terminated and moves the state on in place. sin and cos are the device's own: the CPU
 * and the GPU agree within tolerance. */
#ifndef GRADWEIR_COMMON_ELEMENT_ENVIRONMENT_H
#define GRADWEIR_COMMON_ELEMENT_ENVIRONMENT_H

#include "common/element_random.h"

#include <stdbool.h>

#define ELEMENT_PI 3.14159265358979323846

ELEMENT double element_clamp(double x, double low, double high)
{
    return fmin(fmax(x, low), high);
}

/* CartPole-v1: keep a pole upright on a cart by pushing the cart left or right. 4 uniforms. */
ELEMENT void element_cartpole_reset(double *state, const double *units)
{
    for (int i = 0; i < 4; i++)
        state[i] = element_between(-0.05, 0.05, units[i]);
}

/* Explicit Euler: the positions move with the old velocities. */
ELEMENT bool element_cartpole_step(double *state, double action, double *reward)
{
    const double gravity = 9.8, mass_total = 1.1, mass_pole = 0.1, half_length = 0.5;
    const double pole_moment = 0.05; /* mass_pole * half_length */
    const double dt = 0.02;
    const double x = state[0], x_dot = state[1], theta = state[2], theta_dot = state[3];
    const double force = action > 0.5 ? 10.0 : -10.0;
    const double cosine = cos(theta), sine = sin(theta);
    const double k = (force + pole_moment * (theta_dot * theta_dot) * sine) / mass_total;
    const double theta_acc =
        (gravity * sine - cosine * k) /
        (half_length * (4.0 / 3.0 - mass_pole * (cosine * cosine) / mass_total));
    const double x_acc = k - pole_moment * theta_acc * cosine / mass_total;
    state[0] = x + dt * x_dot;
    state[1] = x_dot + dt * x_acc;
    state[2] = theta + dt * theta_dot;
    state[3] = theta_dot + dt * theta_acc;
    *reward = 1;
    return fabs(state[0]) > 2.4 || fabs(state[2]) > 12 * 2 * ELEMENT_PI / 360;
}

ELEMENT void element_cartpole_observe(const double *state, float *observation)
{
    for (int i = 0; i < 4; i++)
        observation[i] = (float)state[i];
}

/* Pendulum-v1: swing a pendulum up with a weak motor and hold it there. It never terminates. 2
 * uniforms. */
ELEMENT void element_pendulum_reset(double *state, const double *units)
{
    state[0] = element_between(-ELEMENT_PI, ELEMENT_PI, units[0]);
    state[1] = element_between(-1, 1, units[1]);
}

/* To [-pi, pi), as Python's modulo does it. */
ELEMENT double element_pendulum_wrap(double angle)
{
    double rest = fmod(angle + ELEMENT_PI, 2 * ELEMENT_PI);
    if (rest < 0)
        rest += 2 * ELEMENT_PI;
    return rest - ELEMENT_PI;
}

/* The cost is that of the state before the step. */
ELEMENT bool element_pendulum_step(double *state, double action, double *reward)
{
    const double theta = state[0], theta_dot = state[1], torque = element_clamp(action, -2, 2);
    const double angle = element_pendulum_wrap(theta);
    *reward = -(angle * angle + 0.1 * (theta_dot * theta_dot) + 0.001 * (torque * torque));
    state[1] = element_clamp(theta_dot + (15 * sin(theta) + 3 * torque) * 0.05, -8, 8);
    state[0] = theta + state[1] * 0.05;
    return false;
}

ELEMENT void element_pendulum_observe(const double *state, float *observation)
{
    observation[0] = (float)cos(state[0]);
    observation[1] = (float)sin(state[0]);
    observation[2] = (float)state[1];
}

/* MountainCarContinuous-v0: rock a weak car out of a valley, paying for the force used. 1 uniform.
 */
ELEMENT void element_mountain_car_reset(double *state, const double *units)
{
    state[0] = element_between(-0.6, -0.4, units[0]);
    state[1] = 0;
}

/* The action costs as given; only the force is clamped. */
ELEMENT bool element_mountain_car_step(double *state, double action, double *reward)
{
    const double force = element_clamp(action, -1, 1);
    double velocity = state[1] + (force * 0.0015 - 0.0025 * cos(3 * state[0]));
    velocity = element_clamp(velocity, -0.07, 0.07);
    const double position = element_clamp(state[0] + velocity, -1.2, 0.6);
    if (position == -1.2 && velocity < 0)
        velocity = 0;
    state[0] = position;
    state[1] = velocity;
    const bool arrived = position >= 0.45 && velocity >= 0;
    *reward = (arrived ? 100.0 : 0.0) - action * action * 0.1;
    return arrived;
}

ELEMENT void element_mountain_car_observe(const double *state, float *observation)
{
    observation[0] = (float)state[0];
    observation[1] = (float)state[1];
}

/* Acrobot-v1: swing the tip of a two-link arm above a line with a motor in the middle joint only.
 * The equations are those of Sutton and Barto's book; masses and lengths are 1, centres of mass at
 * 0.5, moments of inertia 1. 4 uniforms. */
ELEMENT void element_acrobot_reset(double *state, const double *units)
{
    for (int i = 0; i < 4; i++)
        state[i] = element_between(-0.1, 0.1, units[i]);
}

ELEMENT void element_acrobot_derivative(const double *s, double torque, double *out)
{
    const double gravity = 9.8, c = 0.5; /* centre of mass */
    const double theta1 = s[0], theta2 = s[1], dtheta1 = s[2], dtheta2 = s[3];
    const double cosine = cos(theta2), sine = sin(theta2);
    const double d1 = c * c + (1 + c * c + 2 * c * cosine) + 2;
    const double d2 = (c * c + c * cosine) + 1;
    const double phi2 = c * gravity * cos(theta1 + theta2 - ELEMENT_PI / 2);
    const double phi1 = -c * (dtheta2 * dtheta2) * sine - 2 * c * dtheta2 * dtheta1 * sine +
                        (c + 1) * gravity * cos(theta1 - ELEMENT_PI / 2) + phi2;
    const double acc2 = (torque + d2 / d1 * phi1 - c * (dtheta1 * dtheta1) * sine - phi2) /
                        (c * c + 1 - (d2 * d2) / d1);
    out[0] = dtheta1;
    out[1] = dtheta2;
    out[2] = -(d2 * acc2 + phi1) / d1;
    out[3] = acc2;
}

ELEMENT void element_acrobot_moved(const double *s, const double *slope, double h, double *out)
{
    for (int i = 0; i < 4; i++)
        out[i] = s[i] + h * slope[i];
}

/* One step of the classic fourth-order Runge-Kutta method. */
ELEMENT void element_acrobot_integrate(double *s, double torque)
{
    const double dt = 0.2;
    double k1[4], k2[4], k3[4], k4[4], at[4];
    element_acrobot_derivative(s, torque, k1);
    element_acrobot_moved(s, k1, dt / 2, at);
    element_acrobot_derivative(at, torque, k2);
    element_acrobot_moved(s, k2, dt / 2, at);
    element_acrobot_derivative(at, torque, k3);
    element_acrobot_moved(s, k3, dt, at);
    element_acrobot_derivative(at, torque, k4);
    for (int i = 0; i < 4; i++)
        s[i] += dt / 6 * (k1[i] + 2 * k2[i] + 2 * k3[i] + k4[i]);
}

ELEMENT double element_acrobot_wrap(double angle)
{
    while (angle > ELEMENT_PI)
        angle -= 2 * ELEMENT_PI;
    while (angle < -ELEMENT_PI)
        angle += 2 * ELEMENT_PI;
    return angle;
}

ELEMENT bool element_acrobot_step(double *state, double action, double *reward)
{
    element_acrobot_integrate(state, action - 1);
    state[0] = element_acrobot_wrap(state[0]);
    state[1] = element_acrobot_wrap(state[1]);
    state[2] = element_clamp(state[2], -4 * ELEMENT_PI, 4 * ELEMENT_PI);
    state[3] = element_clamp(state[3], -9 * ELEMENT_PI, 9 * ELEMENT_PI);
    const bool above = -cos(state[0]) - cos(state[1] + state[0]) > 1;
    *reward = above ? 0 : -1;
    return above;
}

ELEMENT void element_acrobot_observe(const double *state, float *observation)
{
    observation[0] = (float)cos(state[0]);
    observation[1] = (float)sin(state[0]);
    observation[2] = (float)cos(state[1]);
    observation[3] = (float)sin(state[1]);
    observation[4] = (float)state[2];
    observation[5] = (float)state[3];
}

#endif
